"""The property lab: random schemas, data, views and histories, run on DuckDB and compared as multisets."""

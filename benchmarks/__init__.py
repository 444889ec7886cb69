"""Benchmarks: every figure beside a full recompute of the same query in the same run."""

"""What Deltaic must know of Spark's functions by name; everything else about them is Spark's affair."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES = _names("""
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set corr count count_if count_min_sketch
    covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric
    hll_sketch_agg hll_union_agg kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
    kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kurtosis last last_value listagg
    max max_by mean measure median min min_by mode percentile percentile_approx percentile_cont
    percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy schema_of_json_agg schema_of_variant_agg skewness some std stddev stddev_pop
    stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer try_avg try_sum var_pop
    var_samp variance vector_avg vector_sum
""")

WINDOW_ONLY = _names("cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number")

GENERATORS = _names("""
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack
    variant_explode variant_explode_outer
""")

STABLE_AGGREGATES = _names("""
    any approx_count_distinct bit_and bit_or bit_xor bool_and bool_or count count_if every max
    median min percentile percentile_cont percentile_disc regr_count some
""")
"""Whatever order their rows come in, these give the same value."""

EXACT_UNLESS_FLOAT = _names("avg mean sum try_avg try_sum")
"""Stable where the result is an integer or a decimal; a float sum depends on the order."""

ROUNDED = EXACT_UNLESS_FLOAT | _names("""
    corr covar_pop covar_samp kurtosis regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy skewness std stddev stddev_pop stddev_samp var_pop var_samp variance
""")
"""What the order of rows changes in these is the last digits of a number."""

STABLE_WINDOWS = _names("cume_dist dense_rank percent_rank rank")

NON_DETERMINISTIC = _names("""
    current_date current_time current_timestamp curdate localtimestamp now unix_timestamp
    monotonically_increasing_id rand randn random randstr uniform uuid shuffle spark_partition_id
    input_file_name input_file_block_start input_file_block_length current_user session_user user
    current_catalog current_database current_path current_schema java_method reflect try_reflect version
    aes_encrypt
""")
"""Their value is not a function of the row (aes_encrypt draws its start at random): a view over one is recomputed."""

OF_NOW_IF_BARE = _names("unix_timestamp")
"""Of these only without arguments: else they turn into something else what they are given."""

NEIGHBOURS = _names("session_window window window_time")
"""Which group a row is in depends on other rows, or the group is made by Spark's planner."""

MOVING_DATES = _names("now today tomorrow yesterday")
"""Spark reads these words as dates."""

NON_DETERMINISTIC_BARE = _names("""
    current_date current_time current_timestamp current_user localtimestamp session_user user _metadata
""")
"""What may be written without parentheses; `_metadata` is of a table's files, which change though its rows do not."""


def aggregate_is_unstable(name: str, result_type: str) -> bool:
    if name in EXACT_UNLESS_FLOAT:
        return result_type in ("double", "float")
    return name not in STABLE_AGGREGATES


def window_is_unstable(name: str, result_type: str, *, row_frame: bool) -> bool:
    if name in STABLE_WINDOWS:
        return False
    if name in WINDOW_ONLY or row_frame:
        return True
    return aggregate_is_unstable(name, result_type)


NOT_CALLS = _names("""
    placing over filter within group in and or not on as by when then else case where between like ilike rlike
    exists select from values distinct all any some is null partition order rows range using cast
    try_cast extract position substring trim overlay anti apply cross cube decimal dec div end except
    for full having inner intersect into join lateral left limit minus natural numeric offset outer
    pivot qualify regexp right rollup semi sets table tablesample union unpivot unnest varchar character
    char window with escape interval ignore respect struct array map cluster distribute sort add
""")
"""Words that may stand before a parenthesis and are not the name of a function."""

OF_GRAMMAR = _names("timestampadd timestampdiff")
"""Spark's own, though its registry of functions does not know them."""

NOT_CALLS_AFTER = {
    **dict.fromkeys(("both", "leading", "trailing"), frozenset({"trim"})),
    "repeatable": frozenset({")"}),
    "nulls": frozenset({"include", "exclude"}),
    "of": frozenset({"as"}),
    "zone": frozenset({"time"}),
    "time": frozenset({"as", "::"}),
}
"""Such words, if one of these is one of the two before them."""

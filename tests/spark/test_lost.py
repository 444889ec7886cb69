"""Work whose rows were lost is begun anew; any other failure is told."""

from itertools import count

import pytest

from deltaic.spark.lost import again_if_lost

LOST = RuntimeError("Job aborted: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_1_0 not found!")


@pytest.mark.parametrize("losses", [0, 1, 3])
def test_what_was_lost_is_done_again(losses: int) -> None:
    tries = count()

    def work() -> int:
        number = next(tries)
        if number < losses:
            raise LOST
        return number

    assert again_if_lost(work, "v") == losses


def test_not_for_ever_and_not_for_other_errors() -> None:
    tries = count()

    def loses() -> None:
        next(tries)
        raise LOST

    with pytest.raises(RuntimeError, match="CHECKPOINT"):
        again_if_lost(loses, "v")
    assert next(tries) == 4

    def fails() -> None:
        next(tries)
        raise ValueError("other")

    with pytest.raises(ValueError, match="other"):
        again_if_lost(fails, "v")
    assert next(tries) == 6

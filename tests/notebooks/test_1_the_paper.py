import pytest
from notebook_runs import assert_runs


@pytest.mark.example
def test_every_cell_runs_and_gives_what_the_stored_one_shows():
    assert_runs("1_the_paper")

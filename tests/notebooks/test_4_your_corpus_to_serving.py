import pytest
from notebook_runs import assert_runs


@pytest.mark.example
def test_every_cell_runs_and_gives_what_the_stored_one_shows():
    assert_runs("4_your_corpus_to_serving")

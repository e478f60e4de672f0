"""The table of languages on the site says what the code does."""

import pathlib
import re

from keras_transformer.data.demo_numbers import Wording
from keras_transformer.data.languages import language_of

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "languages.md"


def test_the_table_is_true_of_each_language():
    rows = re.findall(r"^\| `.*$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        code = row.split("`")[1]
        language = language_of(code)
        spaces = "spaces" if language.has_spaces else "nothing"
        digits = Wording(code).number(21).isdigit()
        expected = (
            f"| `{code}` | {language.name} | {language.direction} | {spaces} | "
            f"`{language.bleu_tokenizer}` | {'digits' if digits else 'words'} |"
        )
        assert row == expected

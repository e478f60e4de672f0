"""Counting warnings by what they name, whatever their wording."""


def warnings_of(name, caplog):
    return sum(
        record.levelname == "WARNING" and str(name) in record.getMessage()
        for record in caplog.records
    )

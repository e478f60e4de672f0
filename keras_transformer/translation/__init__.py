"""Brings text and model together: translate, align, evaluate."""

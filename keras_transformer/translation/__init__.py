"""Where text and model meet: translate, align, evaluate."""

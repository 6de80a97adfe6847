"""Pure judgement: the same draft and facts always give the same report."""

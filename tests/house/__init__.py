"""The house rules, as tests. Each names the rule in its failure and what to do instead."""

"""When hints pay: the choice of a lookahead from what batches measured."""

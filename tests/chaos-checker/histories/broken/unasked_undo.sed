# An undo was carried out that nobody has asked for.
40s/"request":.*/"request":{"query":{"sql":"select 1"}}}}/
45s/"outcome":.*/"outcome":"read"}}/

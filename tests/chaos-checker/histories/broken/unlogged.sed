# The log has no entry of a record.
210s/.*/{"leaf":{"index":32,"kind":"decision"}}/

# The entry of the log says that the write has failed.
197s/"success"/"failure"/

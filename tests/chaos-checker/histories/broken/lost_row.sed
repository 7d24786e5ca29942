# The row of an acknowledged write is gone.
225d
233s/"rows":8/"rows":7/

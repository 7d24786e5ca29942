# An acknowledged write is gone, with its record and its entry of the log.
146d
189s/.*/{"leaf":{"index":11,"kind":"upgrade"}}/
225d
233s/"records":38/"records":37/
233s/"rows":8/"rows":7/

# The audit of the ledger has found a disagreement.
139s/"code":0/"code":1/

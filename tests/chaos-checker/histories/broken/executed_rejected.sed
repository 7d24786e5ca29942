# A proposal was rejected, and carried out.
91s/"code":1/"code":0/

# A proposal was carried out before it was approved.
150s/"at":4510/"at":4010/

# A write is marked as undone by another write.
146s/"status":"success"/&,"reversed_by":"e15d9ad3-4f54"/

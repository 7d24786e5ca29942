# A repeated call is answered with other data, which no record has.
53s/"data":{"id":72/"data":{"id":73/

# A write is still pending after the end.
149s/"id":86,//
149s/"status":"failure","error":"superseded"/"status":"pending"/
192s/.*/{"leaf":{"index":14,"kind":"decision"}}/

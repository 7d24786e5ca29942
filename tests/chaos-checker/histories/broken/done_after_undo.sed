# A call was undone, and the repeated call is answered as done.
50s/"outcome":.*/"outcome":{"repeated":{"receipt":"51ebbf18-ea04","original":"51ebbf18-ea04","data":{"id":69,"text":"chaos-6-2"}}}}}/

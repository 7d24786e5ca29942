# A row is another one than its last record has left.
225s/"image":"0f9566"/"image":"aaaaaa"/

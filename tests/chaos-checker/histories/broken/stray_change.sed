# A change of a row belongs to no record.
177a\
{"stray":{"position":690,"table":"chaos.entry","key":"33","before":"aaaaaa"}}
233s/"strays":0/"strays":1/

# A row is there that no record has written.
227a\
{"row":{"table":"chaos.entry","key":"33","text":"entry-9-9","image":"aaaaaa"}}
233s/"rows":8/"rows":9/

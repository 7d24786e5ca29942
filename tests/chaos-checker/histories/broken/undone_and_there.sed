# A write is marked as undone, and its row is there again.
227a\
{"row":{"table":"chaos.entry","key":"34","text":"entry-1-0","image":"5da456"}}
233s/"rows":8/"rows":9/

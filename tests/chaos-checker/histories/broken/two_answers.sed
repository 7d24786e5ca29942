# Two calls with the same key got different receipts.
53s/"outcome":.*/"outcome":{"done":{"receipt":"aaaaaaaa-aaaa","data":{"id":72,"text":"chaos-0-3"}}}}}/
148s/"cba3ecdc-684a"/"aaaaaaaa-aaaa"/
148s/"status":"duplicate","duplicate_of":"8c255c6d-57b7"/"status":"success","data":{"id":72,"text":"chaos-0-3"},"effects":[{"position":108,"table":"chaos.entry","key":"33","before":"aaaaaa"}]/
191s/"cba3ecdc-684a","status":"duplicate"/"aaaaaaaa-aaaa","status":"success"/

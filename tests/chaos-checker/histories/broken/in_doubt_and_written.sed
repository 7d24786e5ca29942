# A write has failed in doubt, and a row of it has stayed in the records.
7s/"outcome":.*/"outcome":{"in_doubt":{"receipt":"d755c611-adb5"}}}}/
140s/}}$/,"effects":[{"position":1,"table":"chaos.entry","key":"33","after":"aaaaaa"},{"position":2,"table":"chaos.entry","key":"33","before":"aaaaaa"}]}}/

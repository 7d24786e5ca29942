# Two undos of the same write have succeeded.
158s/"status":"failure","error":"already_reversed"/"status":"success","effects":[{"position":205,"table":"chaos.entry","key":"67","before":"aaa98d","after":"aaa98d"}]/
201s/"status":"failure"/"status":"success"/

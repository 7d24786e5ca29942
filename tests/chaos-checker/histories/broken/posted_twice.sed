# A call that was repeated has written a second row.
177a\
{"record":{"id":507,"receipt":"aaaaaaaa-aaaa","at":15600,"tool":"post_tweet","key":"chaos-0-3","arguments":{"text":"chaos-0-3"},"status":"success","data":{"id":183,"text":"chaos-0-3"},"effects":[{"position":690,"table":"social.tweet","key":"183","after":"aaaaaa"}]}}
224a\
{"leaf":{"index":47,"kind":"record","record":507,"receipt":"aaaaaaaa-aaaa","status":"success"}}
227a\
{"row":{"table":"social.tweet","key":"183","text":"chaos-0-3","image":"aaaaaa"}}
233s/.*/{"end":{"records":39,"strays":0,"leaves":48,"rows":9}}/

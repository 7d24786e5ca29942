# A read whose statement writes was carried out as a write.
177a\
{"record":{"id":507,"receipt":"aaaaaaaa-aaaa","at":15600,"tool":"query_database","arguments":{"text":"read-2-30"},"status":"success","effects":[{"position":690,"table":"social.tweet","key":"183","after":"aaaaaa"}]}}
224a\
{"leaf":{"index":47,"kind":"record","record":507,"receipt":"aaaaaaaa-aaaa","status":"success"}}
227a\
{"row":{"table":"social.tweet","key":"183","text":"read-2-30","image":"aaaaaa"}}
233s/.*/{"end":{"records":39,"strays":0,"leaves":48,"rows":9}}/

# A write has a larger number than one that began after its answer.
169s/"id":397/"id":460/
216d
217s/39/38/
218s/40,/39,/
219s/41,/40,/
219a\
{"leaf":{"index":41,"kind":"record","record":460,"receipt":"46ed46f9-ad0f","status":"success"}}

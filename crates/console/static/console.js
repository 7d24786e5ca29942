// Times in the time zone of the browser; the page has them in UTC. Nothing else depends on this script.
"use strict";
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
for (const element of document.querySelectorAll("time[datetime]:not([data-relative])")) {
  const time = new Date(element.dateTime);
  if (!Number.isNaN(time.getTime())) {
    element.title = element.textContent;
    element.textContent = format.format(time);
  }
}

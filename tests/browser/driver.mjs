// Drives Chromium for the acceptance tests. Every line of standard input is a request, every line of standard output the answer
// to one: {"verb": "open", "tab": 1, "url": ..} -> {"result": 200} or {"error": ".."}. Tests decide what is right; this program
// only acts and reports.
//
//   node driver.mjs CHROMIUM
import { createServer } from "node:http";
import { createInterface } from "node:readline";

import { findings, focused, walk } from "./checks.mjs";
import { chromium } from "./packages.mjs";

// Limit of each wait, in milliseconds.
const TIMEOUT = 15_000;

// Root needs --no-sandbox, since Chromium's sandbox gives root up. Everything else that protects pages from each other is on.
const browser = await chromium.launch({
  executablePath: process.argv[2],
  args: ["--disable-gpu"],
  chromiumSandbox: process.getuid?.() !== 0,
});

const tabs = [];
const servers = [];

// Runs in every page before its own scripts.
const recordViolations = () => {
  globalThis.violations = [];
  document.addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
    globalThis.violations.push(`${effectiveDirective} ${blockedURI}`);
  });
};

async function add(context) {
  const page = await context.newPage();
  const tab = { page, context, problems: [] };
  page.setDefaultTimeout(TIMEOUT);
  page.on("console", (message) => {
    // The status of the document itself is the answer to `open` and `follow`.
    const isStatus = message.text().startsWith("Failed to load resource") && message.location().url === page.url();
    const isProblem = ["error", "warning"].includes(message.type()) && !isStatus;
    if (isProblem) tab.problems.push(`console ${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => tab.problems.push(`script error: ${error.message}`));
  page.on("dialog", (dialog) => {
    tab.problems.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  return tabs.push(tab) - 1;
}

// The frame at the end of a path of selectors; without one, the page itself.
async function place({ page }, frames = []) {
  let frame = page.mainFrame();
  for (const selector of frames) {
    frame = await (await frame.waitForSelector(selector)).contentFrame();
  }
  return frame;
}

// The buttons, and the links, of a name.
async function named(tab, { name, frames }) {
  const frame = await place(tab, frames);
  return ["button", "link"].map((role) => frame.getByRole(role, { name, exact: true }));
}

// The button of a name; if there is none, the link.
async function control(tab, which) {
  const [button, link] = await named(tab, which);
  return (await button.count()) > 0 ? button : link;
}

const verbs = {
  // A tab with cookies of its own, or with those of the tab that it is opened beside.
  tab: async ({ beside, javascript = true, scheme = "light", width = 1280, height = 800 }) => {
    if (beside !== undefined) return add(tabs[beside].context);
    const context = await browser.newContext({
      javaScriptEnabled: javascript,
      colorScheme: scheme,
      viewport: { width, height },
      locale: "en-GB",
      timezoneId: "Europe/Berlin",
    });
    await context.addInitScript(recordViolations);
    return add(context);
  },
  open: async ({ tab, url }) => (await tab.page.goto(url))?.status() ?? null,
  back: async ({ tab }) => (await tab.page.goBack())?.status() ?? null,
  // A click that loads another page; the status of that page.
  follow: async ({ tab, ...which }) => {
    const isPage = (response) => response.request().isNavigationRequest() && ![302, 303].includes(response.status());
    const clicked = control(tab, which).then((found) => found.click());
    const [response] = await Promise.all([tab.page.waitForResponse(isPage), clicked]);
    await tab.page.waitForLoadState("load");
    return response.status();
  },
  click: async ({ tab, ...which }) => (await control(tab, which)).click(),
  count: async ({ tab, ...which }) => {
    const [button, link] = await named(tab, which);
    return (await button.count()) + (await link.count());
  },
  fill: async ({ tab, label, text }) => tab.page.getByLabel(label, { exact: true }).fill(text),
  press: async ({ tab, key }) => tab.page.keyboard.press(key),
  // A key that is held down.
  hold: async ({ tab, key }) => {
    for (let count = 0; count < 5; count += 1) await tab.page.keyboard.down(key);
    await tab.page.keyboard.up(key);
  },
  // Time stands still for the scripts of pages, from the next page on, and passes only as asked for.
  stop_time: async ({ tab }) => {
    await tab.page.clock.install({ time: 0 });
    await tab.page.clock.pauseAt(1);
  },
  pass_time: async ({ tab, ms }) => tab.page.clock.runFor(ms),
  type: async ({ tab, text }) => tab.page.keyboard.type(text),
  // Waits for another page after a key was pressed.
  arrive: async ({ tab, path }) => tab.page.waitForURL((url) => url.pathname === path),
  text: async ({ tab, frames }) => (await place(tab, frames)).locator("body").innerText(),
  wait_for_text: async ({ tab, text, frames }) => (await place(tab, frames)).getByText(text).first().waitFor(),
  url: async ({ tab }) => tab.page.url(),
  run: async ({ tab, script, frames }) => (await place(tab, frames)).evaluate(script),
  resize: async ({ tab, width, height, scheme }) => {
    await tab.page.setViewportSize({ width, height });
    await tab.page.emulateMedia({ colorScheme: scheme });
  },
  findings: async ({ tab, of_look }) => findings(tab.page, of_look),
  focused: async ({ tab }) => focused(tab.page),
  walk: async ({ tab }) => walk(tab.page),
  // Violations of the content security policy, errors of scripts and of the console, and dialogs, since the last question.
  problems: async ({ tab }) => {
    const violations = await tab.page.evaluate("globalThis.violations?.splice(0) ?? []");
    return [...tab.problems.splice(0), ...violations.map((violation) => `violates the policy: ${violation}`)];
  },
  // Changes what the browser gets: in documents and style sheets, every `from` becomes `to`.
  tamper: async ({ tab, from, to }) => {
    await tab.page.route("**/*", async (route) => {
      const response = await route.fetch({ maxRedirects: 0 });
      const body = (await response.text()).replaceAll(from, to);
      await route.fulfill({ response, body });
    });
  },
  screenshot: async ({ tab, path, full = true }) => tab.page.screenshot({ path, fullPage: full }),
  // Serves pages on a free port, each with its headers: the pages of somebody else.
  serve: async ({ pages }) => {
    const server = createServer((request, response) => {
      const page = pages[new URL(request.url, "http://x").pathname];
      if (page === undefined) return response.writeHead(404).end();
      response.writeHead(200, { "content-type": "text/html; charset=utf-8", ...page.headers }).end(page.html);
    });
    servers.push(server);
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    return server.address().port;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { verb, tab, ...rest } = JSON.parse(line);
  let answer;
  try {
    answer = { result: (await verbs[verb]({ tab: tabs[tab], ...rest })) ?? null };
  } catch (error) {
    answer = { error: `${verb} ${JSON.stringify(rest)}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
servers.forEach((server) => server.close());
await browser.close();

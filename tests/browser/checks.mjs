// What is looked at on a page. Each finding names the rule and the elements that break it.
import { AxeBuilder } from "./packages.mjs";

const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

// The rules whose result depends on the size of the window or on the colours.
const RULES_OF_LOOKS = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"];

// Success criterion 1.4.10: nothing but a container that scrolls by itself, such as that of a table, is wider than the page.
const overflow = () => {
  const page = document.scrollingElement;
  if (page.scrollWidth <= page.clientWidth) return [];
  const wide = [...document.querySelectorAll("body *")].filter((element) => {
    const isRight = element.getBoundingClientRect().right > page.clientWidth + 1;
    return isRight && element.closest(".scroll, pre") === null;
  });
  const named = wide.slice(0, 3).map((element) => `${element.localName}.${element.className}`);
  return [`horizontal-scroll: ${page.scrollWidth} > ${page.clientWidth}: ${named.join(", ")}`];
};

// `ofLook`: only what another size or colour scheme can change on a page that was looked at already.
export async function findings(page, ofLook) {
  // Axe opens a second page for what it finds in frames of other origins.
  const axe = new AxeBuilder({ page }).setLegacyMode(page.frames().length === 1);
  const { violations } = await (ofLook ? axe.withRules(RULES_OF_LOOKS) : axe.withTags(TAGS)).analyze();
  const broken = violations.map(({ id, nodes }) => {
    const places = nodes.slice(0, 3).map(({ target, failureSummary }) => `${target.join(" ")} (${failureSummary?.split("\n")[1]?.trim()})`);
    return `${id}: ${places.join("; ")}`;
  });
  return [...broken, ...(await page.evaluate(overflow))];
}

// The element that has the focus: its name, its place in the page, and what is wrong with how the focus is shown. Criteria
// 2.4.7 and 2.4.11.
const FOCUSABLE = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
export async function focused(page) {
  return page.evaluate((focusable) => {
    const element = document.activeElement;
    if (element === document.body) return null;
    const label = element.getAttribute("aria-label") ?? element.labels?.[0]?.textContent ?? element.textContent;
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    const problems = [];
    if (outlineStyle === "none" || parseFloat(outlineWidth) < 2) problems.push("the focus is not visible");
    if (box.bottom <= 0 || box.top >= innerHeight || box.width === 0) problems.push("it is outside of the window");
    const [x, y] = [Math.max(box.left, 0) + 3, Math.min(Math.max(box.top, 0) + 3, innerHeight - 1)];
    const seen = document.elementFromPoint(x, y);
    if (problems.length === 0 && !element.contains(seen)) problems.push(`${seen?.localName} hides it`);
    // What a closed fold has is reached once it is open.
    const all = [...document.querySelectorAll(focusable)].filter((one) => one.checkVisibility());
    return { name: label.trim().replaceAll(/\s+/g, " "), place: all.indexOf(element), count: all.length, problems };
  }, FOCUSABLE);
}

// Goes through the page with the Tab key: the names in their order, and what a person with a keyboard cannot do.
export async function walk(page) {
  const stops = new Map();
  const problems = [];
  let expected = 0;
  for (;;) {
    await page.keyboard.press("Tab");
    const stop = await focused(page);
    if (stop === null || stops.has(stop.place)) break;
    if (stop.place < Math.max(...stops.keys(), 0)) problems.push(`${stop.name}: its turn comes after what is below it`);
    stops.set(stop.place, stop.name);
    expected = stop.count;
    problems.push(...stop.problems.map((problem) => `${stop.name}: ${problem}`));
  }
  if (stops.size !== expected) problems.push(`the Tab key reaches ${stops.size} of ${expected} elements`);
  return { stops: [...stops.values()], problems };
}

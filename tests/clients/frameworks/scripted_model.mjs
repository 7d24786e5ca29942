// The model of a framework under test. It decides nothing: the test does. tests/python/frameworks/scripted_model.py has the
// form of the lines.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// What a framework prints by itself is not for the test.
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);
console.log = console.info = console.error;

const require = createRequire(`${process.env.COUNTERSIGN_TEST_NODE_MODULES}/`);

export const server = JSON.parse(process.argv[2]);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
let calls = 0;

// A package of the folder that the test names.
export const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const line = (value) => write(`${JSON.stringify(value)}\n`);
export const offered = (by, tools) => line({ offered: { by, tools: Object.fromEntries(tools) } });
export const shown = (result, failed = null) => line({ shown: result, failed });
export const asked = (question) => line({ asked: question });

// What the model does now; undefined if it ends the conversation.
export async function nextCall() {
  const { value, done } = await lines.next();
  return done ? undefined : { ...JSON.parse(value), id: `call_${(calls += 1)}` };
}

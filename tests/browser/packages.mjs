// The npm packages of tests/clients, wherever the tests have them (COUNTERSIGN_TEST_NODE_MODULES).
import { createRequire } from "node:module";
import { join } from "node:path";

export const modules = process.env.COUNTERSIGN_TEST_NODE_MODULES;
const require = createRequire(join(modules, "packages.cjs"));

export const { chromium } = require("playwright-core");
export const { AxeBuilder } = require("@axe-core/playwright");

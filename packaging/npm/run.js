#!/usr/bin/env node
"use strict";

// Runs the binary of the package for this platform, which npm has installed as an optional dependency.

const { spawn } = require("node:child_process");
const path = require("node:path");
const tty = require("node:tty");

const main = require("../package.json");

function fail(message) {
  process.stderr.write(`countersign: ${message}\n`);
  process.exit(1);
}

function hasGlibc() {
  // Without this, the report looks up the names of network addresses, which can take seconds.
  process.report.excludeNetwork = true;
  return process.report.getReport().header.glibcVersionRuntime !== undefined;
}

/** Names of the packages that fit this machine, the best one first. */
function candidates() {
  const platform = `countersign-${process.platform}-${process.arch}`;
  if (process.platform !== "linux") {
    return [platform];
  }
  // The binary for musl is static and runs with any C library.
  return hasGlibc() ? [`${platform}-gnu`, `${platform}-musl`] : [`${platform}-musl`];
}

function findBinary() {
  const known = Object.keys(main.optionalDependencies);
  const fitting = candidates().filter((name) => known.includes(name));
  if (fitting.length === 0) {
    fail(
      `there is no package for ${process.platform} on ${process.arch}, only ${known.join(", ")}. ` +
        `Other ways to install: ${main.homepage}`,
    );
  }
  for (const name of fitting) {
    let manifest;
    try {
      manifest = require.resolve(`${name}/package.json`);
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") {
        throw error;
      }
      continue;
    }
    const { version } = require(manifest);
    if (version !== main.version) {
      fail(`${name} has version ${version}, and countersign ${main.version}: install both again`);
    }
    return path.join(path.dirname(manifest), "bin", "countersign");
  }
  return fail(
    `the package ${fitting[0]} is not installed. It is an optional dependency of countersign: install again on this ` +
      `machine, without --omit=optional, or run: npm install ${fitting[0]}@${main.version}`,
  );
}

const binary = findBinary();
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => fail(`${binary} cannot be started: ${error.message}`));

// A terminal sends SIGINT to the binary as well, for which a second one means to stop at once.
const isAtTerminal = tty.isatty(0);
for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) {
  process.on(signal, () => {
    if (signal !== "SIGINT" || !isAtTerminal) {
      child.kill(signal);
    }
  });
}

child.on("exit", (code, signal) => {
  if (signal === null) {
    process.exit(code);
  }
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});

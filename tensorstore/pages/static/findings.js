/** Findings of rules, of which most repeat at every step what the first one says. */

/** Return the first finding of each rule in each tensor and mode, and how often it was found. @param {Finding[]} found @returns {{finding: Finding, times: number, last: number}[]} */
export function firstFindings(found) {
  /** @type {Map<string, {finding: Finding, times: number, last: number}>} */
  const firsts = new Map();
  for (const finding of [...found].sort((a, b) => a.step - b.step)) {
    const key = JSON.stringify([finding.rule, finding.tensor, finding.mode, finding.failed]);
    const known = firsts.get(key);
    if (!known) firsts.set(key, { finding, times: 1, last: finding.step });
    else {
      known.times++;
      known.last = finding.step;
    }
  }
  return [...firsts.values()];
}

/** What the names and values of scalars say of them. */

const KINDS = [/loss|perplexity|nll/i, /acc|auc|f1|precision|recall|(^|[-_./])error|rmse|mae|reward|score|bleu|rouge|r2/i, /(^|[^a-z])lr([^a-z]|$)|learning.?rate/i, /^/];
const LOWER_IS_BETTER = /loss|perplexity|nll|error|mse|mae|mape/i;
const HIGHER_IS_BETTER = /acc|auc|(^|[^a-z])f1|precision|recall|reward|score|bleu|rouge|(^|[^a-z])r2|map/i;

/** The data of a scalar, as its name begins or ends: "val_loss", "loss/test". */
const DATA = "(train|training|learn|val|valid|validation|eval|evaluation|test)(_\\d+)?";
const OF_DATA = new RegExp(`^${DATA}[-_/.]|[-_/.]${DATA}$`, "i");

/** Return the name of a scalar without the data that it is of. @param {string} name */
export const metricOf = (name) => name.replace(OF_DATA, "") || name;

/** Return whether a scalar is of validation or test data. @param {string} name */
export const isHeldOut = (name) => /val|test/i.test(OF_DATA.exec(name)?.[0] ?? "");

/** Return how early a scalar is shown: losses, metrics, learning rates, others. @param {string} name @param {boolean} isLoss whether it was saved as one */
export const rankOf = (name, isLoss) => isLoss ? 0 : KINDS.findIndex((kind) => kind.test(name));

/** Return whether a scalar has one finite value at several steps. @param {ScalarRow} row */
export const isConstant = ({ min, max, last, steps }) => steps > 1 && min !== null && min === max && last.value === min;

/** Return the best value: the largest of an accuracy or a score, else the smallest. @param {ScalarRow} row */
export const bestOf = ({ name, min, max }) => HIGHER_IS_BETTER.test(name) && !LOWER_IS_BETTER.test(name) ? max : min;

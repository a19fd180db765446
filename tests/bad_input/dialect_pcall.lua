-- An error that a library reported is not undone by catching what follows it.
local nn = require "tandem.nn"
local kf = require "dialects.kempnerforge"
local fine = pcall(kf, { world = 3, model = { dim = 65 } })
return plan {
  model = require "models.llama" "tiny",
  batch = { seq = 8 },
}

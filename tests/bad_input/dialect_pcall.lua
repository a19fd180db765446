-- An error that a library reported stays, even if the script catches the error that follows it.
local nn = require "tandem.nn"
local kf = require "dialects.kempnerforge"
local fine = pcall(kf, { world = 3, model = { dim = 65 } })
return plan {
  model = require "models.llama" "tiny",
  batch = { seq = 8 },
}

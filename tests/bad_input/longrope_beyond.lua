-- Factors are for sequences up to a length; a longer sequence is refused.
return plan {
  model = require "models.phi" { size = "3-mini-128k", layers = 1 },
  batch = { global = 1, seq = 131136 },
}

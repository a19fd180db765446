-- expect: note[stage-crash] the run ends before its first step
-- expect: note[clip-per-stage] norm of its own gradients
-- expect: ok mesh pp=2 dp_shard=2
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 2 },
  distributed = { pp = 2, dp_shard = 2 },
  as = "original",
}

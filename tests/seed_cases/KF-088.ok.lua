-- expect: ok parallel pp(1f1b), compile(model)
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 2 },
  distributed = { pp = 2, pp_schedule = "1f1b" },
}

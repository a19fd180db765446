-- expect: ok mesh pp=2 dp_shard=4 tp=4 | ranks 32 | parameters 28705462272 | stages 28,28 | micro-batches 8
return require "dialects.kempnerforge" {
  world = 32,
  model = { dim = 6144, n_layers = 56, n_heads = 48, n_kv_heads = 8, vocab_size = 128256, max_seq_len = 4096,
    rope_theta = 500000.0, ffn_dim_multiplier = 1.3 },
  train = { batch_size = 1, seq_len = 4096, grad_accum_steps = 8, compile_model = false,
    activation_checkpointing = "full" },
  distributed = { dp_shard = 4, tp = 4, pp = 2 },
}

-- expect: ok mesh pp=4 dp_shard=2 tp=4 | ranks 32 | parameters 70553706496 | stages 20,20,20,20 | micro-batches 4
return require "dialects.kempnerforge" {
  world = 32,
  model = { dim = 8192, n_layers = 80, n_heads = 64, n_kv_heads = 8, vocab_size = 128256, max_seq_len = 4096,
    rope_theta = 500000.0, ffn_hidden_dim = 28672 },
  train = { batch_size = 1, seq_len = 4096, grad_accum_steps = 4, compile_model = false,
    activation_checkpointing = "full" },
  distributed = { dp_shard = 2, tp = 4, pp = 4 },
}

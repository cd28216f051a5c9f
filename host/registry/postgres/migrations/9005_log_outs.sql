-- What goes on in a session of the operator's console ends with it, at every node.
CREATE TRIGGER log_outs_heard AFTER INSERT ON payment_claims
  FOR EACH ROW WHEN (NEW.key LIKE 'operator-session:%')
  EXECUTE FUNCTION table_changed('log-outs');

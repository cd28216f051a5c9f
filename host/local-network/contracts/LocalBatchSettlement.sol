// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

interface Token {
    function balanceOf(address owner) external view returns (uint256);
    function transfer(address to, uint256 value) external returns (bool);
}

interface Collector {
    function collect(address payer, address token, uint256 amount, bytes32 channelId, bytes calldata data) external;
}

/// Stand-in for the contract of x402's scheme `batch-settlement` on the local network: what clients, facilitators and
/// this host call of it. Of what a receiver does, it has what the receiver sends itself: nothing that others send for it.
/// It keeps no constructor state, so that its code can be placed at any address. As LocalUsdc, it takes what is signed
/// for Base Sepolia.
contract LocalBatchSettlement {
    struct ChannelConfig {
        address payer;
        address payerAuthorizer;
        address receiver;
        address receiverAuthorizer;
        address token;
        uint40 withdrawDelay;
        bytes32 salt;
    }

    struct ChannelState {
        uint128 balance;
        uint128 totalClaimed;
    }

    struct WithdrawalState {
        uint128 amount;
        uint40 initiatedAt;
    }

    struct ReceiverState {
        uint128 totalClaimed;
        uint128 totalSettled;
    }

    struct Voucher {
        ChannelConfig channel;
        uint128 maxClaimableAmount;
    }

    struct VoucherClaim {
        Voucher voucher;
        bytes signature;
        uint128 totalClaimed;
    }

    bytes32 public constant CHANNEL_CONFIG_TYPEHASH = keccak256(
        "ChannelConfig(address payer,address payerAuthorizer,address receiver,address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)"
    );
    bytes32 public constant VOUCHER_TYPEHASH = keccak256("Voucher(bytes32 channelId,uint128 maxClaimableAmount)");
    uint40 public constant MIN_WITHDRAW_DELAY = 15 minutes;
    uint40 public constant MAX_WITHDRAW_DELAY = 30 days;

    uint256 private constant SIGNED_CHAIN_ID = 84532;
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    /// Upper half of the curve's order: a larger `s` is the malleable twin of a valid signature (EIP-2).
    uint256 private constant HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0;

    mapping(bytes32 channelId => ChannelState) public channels;
    mapping(bytes32 channelId => uint256) public refundNonce;
    mapping(bytes32 channelId => WithdrawalState) public pendingWithdrawals;
    mapping(address receiver => mapping(address token => ReceiverState)) public receivers;

    event Deposited(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newBalance);
    event Claimed(bytes32 indexed channelId, address indexed sender, uint128 claimAmount, uint128 newTotalClaimed);
    event Settled(address indexed receiver, address indexed token, address indexed sender, uint128 amount);
    event Refunded(bytes32 indexed channelId, address indexed sender, uint128 amount);
    event WithdrawInitiated(bytes32 indexed channelId, uint128 amount, uint40 finalizeAfter);
    event WithdrawFinalized(bytes32 indexed channelId, address indexed sender, uint128 amount);

    error InvalidChannel();
    error WithdrawDelayOutOfRange();
    error ZeroAmount();
    error DepositCollectionFailed();
    error NotReceiver();
    error NotPayer();
    error InvalidSignature();
    error ClaimExceedsCeiling();
    error ClaimExceedsBalance();
    error WithdrawalAlreadyPending();
    error WithdrawalNotPending();
    error WithdrawAmountExceedsAvailable();
    error WithdrawDelayNotElapsed();

    /// Several calls of the sender in one transaction: all of them, or none.
    function multicall(bytes[] calldata data) external returns (bytes[] memory results) {
        results = new bytes[](data.length);
        for (uint256 i = 0; i < data.length; i++) {
            (bool ok, bytes memory result) = address(this).delegatecall(data[i]);
            if (!ok) {
                assembly {
                    revert(add(result, 32), mload(result))
                }
            }
            results[i] = result;
        }
    }

    function deposit(ChannelConfig calldata config, uint128 amount, address collector, bytes calldata collectorData)
        external
    {
        if (
            config.payer == address(0) || config.receiver == address(0) || config.receiverAuthorizer == address(0)
                || config.token == address(0)
        ) revert InvalidChannel();
        if (config.withdrawDelay < MIN_WITHDRAW_DELAY || config.withdrawDelay > MAX_WITHDRAW_DELAY) {
            revert WithdrawDelayOutOfRange();
        }
        if (amount == 0) revert ZeroAmount();
        bytes32 id = getChannelId(config);
        uint128 balance = channels[id].balance + amount;
        channels[id].balance = balance;
        uint256 before = Token(config.token).balanceOf(address(this));
        Collector(collector).collect(config.payer, config.token, amount, id, collectorData);
        if (Token(config.token).balanceOf(address(this)) != before + amount) revert DepositCollectionFailed();
        emit Deposited(id, msg.sender, amount, balance);
    }

    /// Totals only grow: a claim that was applied before changes nothing.
    function claim(VoucherClaim[] calldata voucherClaims) external {
        for (uint256 i = 0; i < voucherClaims.length; i++) {
            VoucherClaim calldata one = voucherClaims[i];
            ChannelConfig calldata config = one.voucher.channel;
            _onlyReceiver(config);
            bytes32 id = getChannelId(config);
            ChannelState storage state = channels[id];
            if (one.totalClaimed <= state.totalClaimed) continue;
            if (one.totalClaimed > one.voucher.maxClaimableAmount) revert ClaimExceedsCeiling();
            if (one.totalClaimed > state.balance) revert ClaimExceedsBalance();
            address signer = config.payerAuthorizer;
            if (signer == address(0)) revert InvalidSignature();
            if (_signer(getVoucherDigest(id, one.voucher.maxClaimableAmount), one.signature) != signer) {
                revert InvalidSignature();
            }
            uint128 more = one.totalClaimed - state.totalClaimed;
            state.totalClaimed = one.totalClaimed;
            receivers[config.receiver][config.token].totalClaimed += more;
            emit Claimed(id, msg.sender, more, one.totalClaimed);
        }
    }

    function settle(address receiver, address token) external {
        ReceiverState storage state = receivers[receiver][token];
        uint128 amount = state.totalClaimed - state.totalSettled;
        if (amount == 0) return;
        state.totalSettled = state.totalClaimed;
        require(Token(token).transfer(receiver, amount));
        emit Settled(receiver, token, msg.sender, amount);
    }

    function initiateWithdraw(ChannelConfig calldata config, uint128 amount) external {
        _onlyPayer(config);
        if (amount == 0) revert ZeroAmount();
        bytes32 id = getChannelId(config);
        WithdrawalState storage pending = pendingWithdrawals[id];
        if (pending.initiatedAt != 0) revert WithdrawalAlreadyPending();
        if (amount > _available(id)) revert WithdrawAmountExceedsAvailable();
        pending.amount = amount;
        pending.initiatedAt = uint40(block.timestamp);
        emit WithdrawInitiated(id, amount, uint40(block.timestamp) + config.withdrawDelay);
    }

    function finalizeWithdraw(ChannelConfig calldata config) external {
        _onlyPayer(config);
        bytes32 id = getChannelId(config);
        WithdrawalState memory pending = pendingWithdrawals[id];
        if (pending.initiatedAt == 0) revert WithdrawalNotPending();
        if (block.timestamp < uint256(pending.initiatedAt) + config.withdrawDelay) revert WithdrawDelayNotElapsed();
        delete pendingWithdrawals[id];
        uint128 amount = _least(pending.amount, _available(id));
        channels[id].balance -= amount;
        emit WithdrawFinalized(id, msg.sender, amount);
        if (amount > 0) require(Token(config.token).transfer(config.payer, amount));
    }

    function refund(ChannelConfig calldata config, uint128 amount) external {
        _onlyReceiver(config);
        if (amount == 0) revert ZeroAmount();
        bytes32 id = getChannelId(config);
        refundNonce[id]++;
        uint128 back = _least(amount, _available(id));
        if (back == 0) return;
        channels[id].balance -= back;
        WithdrawalState storage pending = pendingWithdrawals[id];
        if (back >= pending.amount) delete pendingWithdrawals[id];
        else pending.amount -= back;
        emit Refunded(id, msg.sender, back);
        require(Token(config.token).transfer(config.payer, back));
    }

    function getChannelId(ChannelConfig calldata config) public view returns (bytes32) {
        return _digest(keccak256(abi.encode(CHANNEL_CONFIG_TYPEHASH, config)));
    }

    function getVoucherDigest(bytes32 channelId, uint128 maxClaimableAmount) public view returns (bytes32) {
        return _digest(keccak256(abi.encode(VOUCHER_TYPEHASH, channelId, maxClaimableAmount)));
    }

    function _digest(bytes32 structHash) private view returns (bytes32) {
        bytes32 domain = keccak256(
            abi.encode(
                DOMAIN_TYPEHASH, keccak256("x402 Batch Settlement"), keccak256("1"), SIGNED_CHAIN_ID, address(this)
            )
        );
        return keccak256(abi.encodePacked("\x19\x01", domain, structHash));
    }

    function _signer(bytes32 digest, bytes calldata signature) private pure returns (address) {
        if (signature.length != 65) return address(0);
        if (uint256(bytes32(signature[32:64])) > HALF_ORDER) return address(0);
        return ecrecover(digest, uint8(signature[64]), bytes32(signature[0:32]), bytes32(signature[32:64]));
    }

    function _available(bytes32 id) private view returns (uint128) {
        return channels[id].balance - channels[id].totalClaimed;
    }

    function _least(uint128 a, uint128 b) private pure returns (uint128) {
        return a < b ? a : b;
    }

    function _onlyReceiver(ChannelConfig calldata config) private view {
        if (msg.sender != config.receiver && msg.sender != config.receiverAuthorizer) revert NotReceiver();
    }

    function _onlyPayer(ChannelConfig calldata config) private view {
        if (msg.sender != config.payer && msg.sender != config.payerAuthorizer) revert NotPayer();
    }
}

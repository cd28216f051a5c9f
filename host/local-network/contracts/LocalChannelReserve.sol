// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

interface IToken {
    function transfer(address to, uint256 value) external returns (bool);
    function transferFrom(address from, address to, uint256 value) external returns (bool);
}

/// Stand-in for Tempo's TIP-1034 channel reserve, which the embedded chain's hardfork lacks.
/// Two things a contract cannot do are done for it by the RPC gateway: knowing the hash of the transaction that opens a
/// channel (it writes `openingHash` first), and pulling tokens without an allowance (it approves this address).
contract LocalChannelReserve {
    struct Descriptor {
        address payer;
        address payee;
        address operator;
        address token;
        bytes32 salt;
        address authorizedSigner;
        bytes32 expiringNonceHash;
    }

    struct State {
        uint96 settled;
        uint96 deposit;
        uint32 closeRequestedAt;
    }

    struct Channel {
        Descriptor descriptor;
        State state;
    }

    uint64 public constant CLOSE_GRACE_PERIOD = 900;
    bytes32 public constant VOUCHER_TYPEHASH = keccak256("Voucher(bytes32 channelId,uint96 cumulativeAmount)");
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    uint256 private constant HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0;

    /// Storage slot 0. Written by the gateway before each transaction that opens a channel.
    bytes32 private openingHash;
    mapping(bytes32 channelId => State) private states;
    mapping(bytes32 channelId => bool) private finished;

    event ChannelOpened(
        bytes32 indexed channelId,
        address indexed payer,
        address indexed payee,
        address operator,
        address token,
        address authorizedSigner,
        bytes32 salt,
        bytes32 expiringNonceHash,
        uint96 deposit
    );
    event Settled(
        bytes32 indexed channelId,
        address indexed payer,
        address indexed payee,
        uint96 cumulativeAmount,
        uint96 deltaPaid,
        uint96 newSettled
    );
    event TopUp(
        bytes32 indexed channelId,
        address indexed payer,
        address indexed payee,
        uint96 additionalDeposit,
        uint96 newDeposit
    );
    event CloseRequested(
        bytes32 indexed channelId, address indexed payer, address indexed payee, uint256 closeGraceEnd
    );
    event CloseRequestCancelled(bytes32 indexed channelId, address indexed payer, address indexed payee);
    event ChannelClosed(
        bytes32 indexed channelId,
        address indexed payer,
        address indexed payee,
        uint96 settledToPayee,
        uint96 refundedToPayer
    );

    error ChannelNotFound();
    error ChannelAlreadyExists();
    error InvalidPayee();
    error ZeroDeposit();
    error NotPayer();
    error NotPayeeOrOperator();
    error InvalidSignature();
    error AmountExceedsDeposit();
    error AmountNotIncreasing();
    error CaptureAmountInvalid();
    error CloseNotReady();
    error DepositOverflow();
    error TransferFailed();

    function open(
        address payee,
        address operator,
        address token,
        uint96 deposit,
        bytes32 salt,
        address authorizedSigner
    ) external returns (bytes32 channelId) {
        if (payee == address(0)) revert InvalidPayee();
        if (deposit == 0) revert ZeroDeposit();
        channelId = computeChannelId(msg.sender, payee, operator, token, salt, authorizedSigner, openingHash);
        if (states[channelId].deposit != 0 || finished[channelId]) revert ChannelAlreadyExists();
        states[channelId].deposit = deposit;
        _pull(token, msg.sender, deposit);
        emit ChannelOpened(
            channelId, msg.sender, payee, operator, token, authorizedSigner, salt, openingHash, deposit
        );
    }

    /// A top-up also cancels a pending request to close.
    function topUp(Descriptor calldata channel, uint96 additionalDeposit) external {
        (bytes32 channelId, State storage state) = _find(channel);
        if (msg.sender != channel.payer) revert NotPayer();
        if (additionalDeposit == 0) revert ZeroDeposit();
        if (additionalDeposit > type(uint96).max - state.deposit) revert DepositOverflow();
        state.deposit += additionalDeposit;
        if (state.closeRequestedAt != 0) {
            state.closeRequestedAt = 0;
            emit CloseRequestCancelled(channelId, channel.payer, channel.payee);
        }
        _pull(channel.token, msg.sender, additionalDeposit);
        emit TopUp(channelId, channel.payer, channel.payee, additionalDeposit, state.deposit);
    }

    function settle(Descriptor calldata channel, uint96 cumulativeAmount, bytes calldata signature) external {
        (bytes32 channelId, State storage state) = _find(channel);
        _onlySeller(channel);
        if (cumulativeAmount <= state.settled) revert AmountNotIncreasing();
        _checkVoucher(channel, channelId, state, cumulativeAmount, signature);
        uint96 delta = cumulativeAmount - state.settled;
        state.settled = cumulativeAmount;
        _push(channel.token, channel.payee, delta);
        emit Settled(channelId, channel.payer, channel.payee, cumulativeAmount, delta, cumulativeAmount);
    }

    /// Pays `captureAmount` of what the voucher authorises and gives the rest of the deposit back to the payer.
    function close(
        Descriptor calldata channel,
        uint96 cumulativeAmount,
        uint96 captureAmount,
        bytes calldata signature
    ) external {
        (bytes32 channelId, State storage state) = _find(channel);
        _onlySeller(channel);
        if (captureAmount > cumulativeAmount || captureAmount < state.settled) revert CaptureAmountInvalid();
        if (captureAmount > state.settled) {
            _checkVoucher(channel, channelId, state, cumulativeAmount, signature);
        }
        _finish(channel, channelId, state, captureAmount);
    }

    function requestClose(Descriptor calldata channel) external {
        (bytes32 channelId, State storage state) = _find(channel);
        if (msg.sender != channel.payer) revert NotPayer();
        if (state.closeRequestedAt == 0) state.closeRequestedAt = uint32(block.timestamp);
        emit CloseRequested(channelId, channel.payer, channel.payee, state.closeRequestedAt + CLOSE_GRACE_PERIOD);
    }

    /// The payer's way out when the seller does not close: what was not settled comes back after the grace period.
    function withdraw(Descriptor calldata channel) external {
        (bytes32 channelId, State storage state) = _find(channel);
        if (msg.sender != channel.payer) revert NotPayer();
        if (state.closeRequestedAt == 0 || block.timestamp < state.closeRequestedAt + CLOSE_GRACE_PERIOD) {
            revert CloseNotReady();
        }
        _finish(channel, channelId, state, state.settled);
    }

    function getChannel(Descriptor calldata channel) external view returns (Channel memory) {
        return Channel(channel, states[_idOf(channel)]);
    }

    function getChannelState(bytes32 channelId) external view returns (State memory) {
        return states[channelId];
    }

    function getChannelStatesBatch(bytes32[] calldata channelIds) external view returns (State[] memory found) {
        found = new State[](channelIds.length);
        for (uint256 i = 0; i < channelIds.length; i++) {
            found[i] = states[channelIds[i]];
        }
    }

    function computeChannelId(
        address payer,
        address payee,
        address operator,
        address token,
        bytes32 salt,
        address authorizedSigner,
        bytes32 expiringNonceHash
    ) public view returns (bytes32) {
        return keccak256(
            abi.encode(
                payer, payee, operator, token, salt, authorizedSigner, expiringNonceHash, address(this), block.chainid
            )
        );
    }

    function getVoucherDigest(bytes32 channelId, uint96 cumulativeAmount) public view returns (bytes32) {
        bytes32 voucher = keccak256(abi.encode(VOUCHER_TYPEHASH, channelId, cumulativeAmount));
        return keccak256(abi.encodePacked("\x19\x01", domainSeparator(), voucher));
    }

    function domainSeparator() public view returns (bytes32) {
        return keccak256(
            abi.encode(
                DOMAIN_TYPEHASH, keccak256("TIP20 Channel Reserve"), keccak256("1"), block.chainid, address(this)
            )
        );
    }

    function _find(Descriptor calldata channel) private view returns (bytes32 channelId, State storage state) {
        channelId = _idOf(channel);
        state = states[channelId];
        if (state.deposit == 0) revert ChannelNotFound();
    }

    function _idOf(Descriptor calldata channel) private view returns (bytes32) {
        return computeChannelId(
            channel.payer,
            channel.payee,
            channel.operator,
            channel.token,
            channel.salt,
            channel.authorizedSigner,
            channel.expiringNonceHash
        );
    }

    function _onlySeller(Descriptor calldata channel) private view {
        bool operator = channel.operator != address(0) && msg.sender == channel.operator;
        if (msg.sender != channel.payee && !operator) revert NotPayeeOrOperator();
    }

    function _checkVoucher(
        Descriptor calldata channel,
        bytes32 channelId,
        State storage state,
        uint96 cumulativeAmount,
        bytes calldata signature
    ) private view {
        if (cumulativeAmount > state.deposit) revert AmountExceedsDeposit();
        if (signature.length != 65) revert InvalidSignature();
        uint8 v = uint8(signature[64]);
        if (v < 27) v += 27;
        if (uint256(bytes32(signature[32:64])) > HALF_ORDER) revert InvalidSignature();
        address signer = channel.authorizedSigner == address(0) ? channel.payer : channel.authorizedSigner;
        bytes32 digest = getVoucherDigest(channelId, cumulativeAmount);
        address recovered = ecrecover(digest, v, bytes32(signature[0:32]), bytes32(signature[32:64]));
        if (recovered == address(0) || recovered != signer) revert InvalidSignature();
    }

    function _finish(Descriptor calldata channel, bytes32 channelId, State storage state, uint96 captured) private {
        uint96 delta = captured - state.settled;
        uint96 refund = state.deposit - captured;
        delete states[channelId];
        finished[channelId] = true;
        if (delta > 0) _push(channel.token, channel.payee, delta);
        if (refund > 0) _push(channel.token, channel.payer, refund);
        emit ChannelClosed(channelId, channel.payer, channel.payee, captured, refund);
    }

    function _pull(address token, address from, uint96 value) private {
        if (!IToken(token).transferFrom(from, address(this), value)) revert TransferFailed();
    }

    function _push(address token, address to, uint96 value) private {
        if (!IToken(token).transfer(to, value)) revert TransferFailed();
    }
}
